"""The only formatters: terminal, JSON, Markdown, HTML, Perfetto, JUnit. Views never compute."""
