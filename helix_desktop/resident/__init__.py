"""One process for each user that outlives windows, terminals and gateways, and ends when nothing
needs it.

It holds what must not change hands: the gateway's listening socket, and which agents
are registered. `resident_process` is the resident itself, all other modules reach it
through `resident_client`, and `gateway_keeper` keeps the gateway behind the socket.
"""
