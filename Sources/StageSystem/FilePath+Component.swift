import Glibc
public import SystemPackage

extension FilePath {
    /// The relative path of one name.
    public init(_ name: Component) {
        self.init(root: nil, [name])
    }

    /// The path as it is from the root, a relative one being below the working directory.
    public var absolute: FilePath {
        guard isRelative, let working = unsafe getcwd(nil, 0) else { return self }
        defer { unsafe free(working) }
        return unsafe FilePath(platformString: working).pushing(self).lexicallyNormalized()
    }
}
