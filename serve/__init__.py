"""The Ray Serve application: ingress, coordinator, shard groups, reader."""
