"""A local gateway for other agents: it records requests and sends the folded view on."""
