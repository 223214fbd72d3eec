"""The guide: its pages are run, its reference is generated, and both become a site."""
