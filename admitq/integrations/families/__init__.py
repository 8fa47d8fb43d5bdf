"""Code that the kinds of one family share, such as those of Ray; kinds import it, and it imports no kind."""
