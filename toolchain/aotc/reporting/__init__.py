"""Reports of a run in the forms that pipelines, reviewers and dashboards read."""
