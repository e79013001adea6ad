// Apple's name of the module of `FilePath` and `FileDescriptor`.
@_exported public import SystemPackage
