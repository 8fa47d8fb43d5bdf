"""Code that the kinds of one family share, such as the kinds of Ray. Kinds import it; it imports no kind."""
