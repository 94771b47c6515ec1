"""Measurements of the project itself, and the recordings of any size they are taken on."""
