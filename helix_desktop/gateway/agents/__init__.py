"""The agents that the gateway knows, a module for each."""
