"""What a project and the user's folders provide for agents: rules, skills, commands, hooks, agents; trusted by hash."""
