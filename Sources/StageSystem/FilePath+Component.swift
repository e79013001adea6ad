public import SystemPackage

extension FilePath {
    /// The relative path of one name.
    public init(_ name: Component) {
        self.init(root: nil, [name])
    }
}
