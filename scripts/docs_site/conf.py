"""How Sphinx builds the site."""

from importlib.metadata import version as version_of

project = "kairo-team"
author = "the authors of kairo-team"
release = version_of("kairo-team")
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries = False
maximum_signature_line_length = 80
html_theme = "furo"
html_title = "kairo-team"
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_theme"]
html_css_files = ["site.css"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
html_extra_path = ["_extra"]
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"
