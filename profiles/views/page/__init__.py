"""The HTML page of a report: `page` puts it together from parts."""
