"""Tables as data: what the page, Markdown and the notebook print."""
