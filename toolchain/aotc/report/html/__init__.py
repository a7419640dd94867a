"""Pages for people: the graph of an artifact, drawn, with all that the artifact claims."""
