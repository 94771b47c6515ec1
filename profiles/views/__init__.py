"""Everything that people or other tools read is formatted here: terminal, Markdown, HTML, Perfetto, JUnit. Views never
compute."""
