// Has a program remove, when it is started with privileges, the variables that it does not believe, before any
// library reads them. A target that depends on this one needs to call nothing.
