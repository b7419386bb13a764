"""The web console of a service: pages over the same controller calls as the API."""
