"""What a project and the user's own folders bring for agents: rules, skills, commands, hooks, agents; trusted by hash."""
