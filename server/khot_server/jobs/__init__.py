"""Jobs: what they are (`spec`, `states`), where they are kept (`store`), what runs them (`runner`).

The API process imports `spec`, `states` and `store`, which know nothing of torch; the
runner process and its attempts import the rest.
"""
