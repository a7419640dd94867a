"""What a run judged, as reports for pipelines, reviewers and dashboards."""
