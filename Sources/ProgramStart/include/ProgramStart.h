// Has a program know its arguments whatever is mounted, and remove, when it is started with privileges, the
// variables that it does not believe, before any library reads them. A target that depends on this one needs to
// call nothing.
