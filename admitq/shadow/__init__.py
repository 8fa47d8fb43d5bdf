"""Another shell of the core: it decides beside the manager in charge and tells where they differ.

``comparison`` is pure and knows no cluster: what happened goes in, with the instants, and findings come out.
``words`` says them.
"""
