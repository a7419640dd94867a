"""What a build does about a variant that is too inexact in a lower precision."""
