/* The parameters and documents that openapi.json speaks of, as tables. */
#pragma once

#include <jansson.h>

/* {name: schema} for all documents of the API. */
json_t *openapi_schemas(void);
/* The parameter NAME of a query, or of a path; NULL: there is none. */
json_t *openapi_parameter(const char *name, const char *in);
