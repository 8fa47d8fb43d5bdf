"""What is refused of objects on their way in."""
