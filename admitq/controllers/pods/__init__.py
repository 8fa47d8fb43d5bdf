"""Rules and controllers for single pods: excess pods, pods of elastic jobs, pods that outlive their job."""
