"""What can be told of artifacts, models, codes and providers, with nobody vouching for it."""
