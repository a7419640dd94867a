"""What a proof compares and judges: runs of the reference, and the gates of one variant."""
