#pragma once
// A provider for OpenSSL that stands in for one of tokens: its keys are files in PEM. What follows 'pkcs11:' in a URI
// are their paths, with ';' between them, and its PIN is "1234", which is asked for before each key.
#include <openssl/bio.h>
#include <openssl/core.h>
#include <openssl/core_dispatch.h>
#include <openssl/core_names.h>
#include <openssl/core_object.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    char *paths;
    char *next;
} stage_token_store;

static inline void *stage_token_open(void *provider, const char *uri) {
    (void)provider;
    stage_token_store *store = calloc(1, sizeof *store);
    if (store == NULL) return NULL;
    store->paths = strdup(uri + strlen("pkcs11:"));
    store->next = store->paths;
    return store;
}

static inline const OSSL_PARAM *stage_token_settable(void *provider) {
    static const OSSL_PARAM parameters[] = {OSSL_PARAM_int(OSSL_STORE_PARAM_EXPECT, NULL), OSSL_PARAM_END};
    (void)provider;
    return parameters;
}

static inline int stage_token_set(void *store, const OSSL_PARAM parameters[]) {
    (void)store;
    (void)parameters;
    return 1;
}

static inline int stage_token_eof(void *context) {
    stage_token_store *store = context;
    return store->next == NULL || *store->next == 0;
}

static inline int stage_token_load(
    void *context, OSSL_CALLBACK *receive, void *receiver, OSSL_PASSPHRASE_CALLBACK *ask, void *asked
) {
    stage_token_store *store = context;
    char pin[32];
    size_t length = 0;
    const OSSL_PARAM none[] = {OSSL_PARAM_END};
    char *path = strsep(&store->next, ";");
    if (!ask(pin, sizeof pin, &length, none, asked) || length != 4 || memcmp(pin, "1234", 4) != 0) {
        store->next = NULL;
        return 0;
    }
    BIO *file = BIO_new_file(path, "r");
    char pem[16384];
    int count = file == NULL ? 0 : BIO_read(file, pem, sizeof pem);
    BIO_free(file);
    if (count <= 0) return 0;
    int type = OSSL_OBJECT_PKEY;
    const OSSL_PARAM object[] = {
        OSSL_PARAM_construct_int(OSSL_OBJECT_PARAM_TYPE, &type),
        OSSL_PARAM_construct_octet_string(OSSL_OBJECT_PARAM_DATA, pem, (size_t)count),
        OSSL_PARAM_construct_end(),
    };
    return receive(object, receiver);
}

static inline int stage_token_close(void *context) {
    stage_token_store *store = context;
    free(store->paths);
    free(store);
    return 1;
}

static inline const OSSL_ALGORITHM *stage_token_query(void *provider, int operation, int *no_cache) {
    static const OSSL_DISPATCH loader[] = {
        {OSSL_FUNC_STORE_OPEN, (void (*)(void))stage_token_open},
        {OSSL_FUNC_STORE_SETTABLE_CTX_PARAMS, (void (*)(void))stage_token_settable},
        {OSSL_FUNC_STORE_SET_CTX_PARAMS, (void (*)(void))stage_token_set},
        {OSSL_FUNC_STORE_LOAD, (void (*)(void))stage_token_load},
        {OSSL_FUNC_STORE_EOF, (void (*)(void))stage_token_eof},
        {OSSL_FUNC_STORE_CLOSE, (void (*)(void))stage_token_close},
        {0, NULL},
    };
    static const OSSL_ALGORITHM stores[] = {{"pkcs11", "provider=pkcs11", loader, NULL}, {NULL, NULL, NULL, NULL}};
    (void)provider;
    *no_cache = 0;
    return operation == OSSL_OP_STORE ? stores : NULL;
}

static inline int stage_token_initialize(
    const OSSL_CORE_HANDLE *handle, const OSSL_DISPATCH *in, const OSSL_DISPATCH **out, void **provider
) {
    static const OSSL_DISPATCH functions[] = {
        {OSSL_FUNC_PROVIDER_QUERY_OPERATION, (void (*)(void))stage_token_query},
        {0, NULL},
    };
    (void)in;
    *out = functions;
    *provider = (void *)handle;
    return 1;
}

/// Makes the stand-in the provider 'pkcs11' of a library context; returns 0 on failure.
static inline int stage_token_register(OSSL_LIB_CTX *context) {
    return OSSL_PROVIDER_add_builtin(context, "pkcs11", stage_token_initialize);
}
