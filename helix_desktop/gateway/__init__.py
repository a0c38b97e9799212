"""The address for agents people already use: what they send is journaled, and goes on as the view the engine makes of it."""
