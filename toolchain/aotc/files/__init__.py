"""Files and folders of the operating system: locks, work folders, atomic replacement, errors.

The names of an artifact's parts are defined here too, because replacing or removing an artifact
depends on them.
"""
