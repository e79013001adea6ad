/// placeholder
public struct Registration: Hashable, Sendable {
    /// x
    public var application: ApplicationID
    /// x
    public var version: String
    /// x
    public var group: ApplicationGroupID
    /// x
    public var manifestURLs: [String]
    /// x
    public var restrictions: Restrictions?
    /// x
    public init(json: [UInt8]) throws(ManifestError) { throw .notJSON("") }
    /// x
    public struct Restrictions: Hashable, Sendable {
        /// x
        public var downloadDomainAllowList: [String]?
    }
}
