"""Forms of continuous queries, filled in as the page fills them before anything is typed."""

from queries.continuous.forms import Form


def fill_form(form: Form) -> str:
    """Return the query of a form, with its first values."""
    text = form.text
    for field in form.fields:
        text = text.replace(f"{{{field.name}}}", f"{field.first:.12g}")
    return text
