"""Tables as data, which the page, Markdown, the terminal and the notebook print."""
