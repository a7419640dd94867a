"""The first files of a project: a profile with the dims of its model, and a job for its CI."""
