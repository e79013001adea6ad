package import StageDigest
import StageModel

/// The digests of a file in signed metadata.
package struct ContentDigests: Hashable, Sendable {
    /// The digests by supported functions, at most one for each.
    package let known: [ContentDigest]
    /// The names of unsupported functions.
    package let unknown: [String]

    /// Reads an object with a member for each hash function; it must have at least one.
    init(reading node: JSONNode) throws(ManifestError) {
        var known: [ContentDigest] = []
        var unknown: [String] = []
        for (name, node) in try node.members() {
            guard let text = node.string else {
                throw node.fault(ValueError(expected: "a string", found: node.value.noun))
            }
            guard let function = HashFunction(rawValue: name) else {
                unknown.append(name)
                continue
            }
            do throws(ValueError) {
                known.append(try ContentDigest(hexadecimal: text, of: function))
            } catch {
                throw node.fault(error)
            }
        }
        guard !known.isEmpty || !unknown.isEmpty else {
            throw node.fault(ValueError(expected: "at least one digest", found: "none"))
        }
        self.known = known
        self.unknown = unknown
    }

    /// Returns the first difference between content and the digests, or `nil` if all supported digests match.
    func fault(of content: [UInt8]) -> ContentFault? {
        guard !known.isEmpty else { return .unknownHashFunctions(unknown) }
        for expected in known {
            let found = ContentDigest(of: content, using: expected.function)
            if found != expected {
                return .digest(
                    function: expected.function.rawValue,
                    expected: expected.hexadecimal,
                    found: found.hexadecimal
                )
            }
        }
        return nil
    }
}

/// The description of a metadata file in the metadata of another role.
struct FileDescription: JSONReadable, Hashable {
    let version: Int
    let length: ByteCount?
    let digests: ContentDigests?

    init(reading node: JSONNode) throws(ManifestError) {
        let members = try JSONMembers(node, keyedBy: Member.self)
        version = try members.number(.version, in: MetadataHeader.versions)
        length =
            members.has(.length)
            ? try members.byteCount(.length, atMost: ByteCount(Int64.max)) : nil
        digests =
            members.has(.hashes)
            ? try ContentDigests(reading: members.node(.hashes, expected: "an object")) : nil
    }

    private enum Member: String, CodingKey { case version, length, hashes }

    /// Returns the maximum number of bytes to read of the file.
    func maximumLength(_ limit: ByteCount) -> ByteCount { length.map { min($0, limit) } ?? limit }

    /// Returns the difference between content and the description, or `nil` if it matches.
    func fault(of content: [UInt8]) -> ContentFault? {
        let found = ByteCount(content.count)
        if let length, length != found { return .length(expected: length, found: found) }
        return digests?.fault(of: content)
    }
}
