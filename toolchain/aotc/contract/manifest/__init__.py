"""The manifest `payload/aotc.json`, and what of the payload it describes."""
