"""Foreign agents that speak the Agent Client Protocol, as conversations of this program."""
