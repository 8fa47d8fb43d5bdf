"""The job kinds, one module each. Modules of kinds do not import each other."""
