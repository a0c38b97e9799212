"""One process for each user that outlives windows, terminals and gateways, and ends when nothing needs it.

It holds what must not change hands: the gateway's listening socket, and which agents are registered. `process` is the resident
itself, `client` is how everything else reaches it, `gateway_keeper` keeps the gateway behind the socket.
"""
