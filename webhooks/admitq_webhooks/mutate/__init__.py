"""What is changed in objects on their way in."""
