"""The settings of the documentation site. `make docs` builds it."""

from __future__ import annotations

import remit

project = "remit"
author = "the remit authors"
project_copyright = "the remit authors"
release = version = remit.__version__

extensions = ["myst_parser"]
exclude_patterns = ["decisions/0000-template.md"]
myst_heading_anchors = 4
# Otherwise `--limits` in a text becomes a dash and `limits`.
smartquotes = False

html_theme = "furo"
html_title = "remit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
