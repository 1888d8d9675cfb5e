"""What is on the wire and where: names, records, connections, and the agents' client."""
