"""Imports what nobody has."""

import nowhere_to_be_found

build = nowhere_to_be_found.build
