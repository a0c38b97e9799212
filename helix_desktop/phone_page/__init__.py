"""The page for phones and browsers: a client of workspaces' hosts, for paired devices only."""
