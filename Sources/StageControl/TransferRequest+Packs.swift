package import StageModel

/// The packs of a staging, in its description.
extension TransferRequest {
    /// Maximum number of bytes that identifiers take in a description.
    private static let listLength = 2000
    /// Mark at the end of a list that lacks packs.
    private static let omissionMark = "…"

    /// Sets the description to the identifiers of the packs, separated by spaces.
    ///
    /// Keeps whole identifiers, up to 2,000 bytes; `…` then stands for the other packs.
    package mutating func setDescription(listing packs: [PackID]) {
        var words: [String] = []
        var length = 0
        for pack in packs {
            length += pack.text.utf8.count + 1
            guard length <= Self.listLength else {
                words.append(Self.omissionMark)
                break
            }
            words.append(pack.text)
        }
        description = words.joined(separator: " ")
    }

    /// Returns whether the task is for a pack; `nil` if its description omits packs and does not list this one.
    ///
    /// The job of a staging decides if it names packs.
    package func isFor(_ pack: PackID) -> Bool? {
        let words = description?.split(separator: " ").map(String.init) ?? []
        guard kind == .staging else { return words == [pack.text] }
        if let packs = staging?.packs { return packs.contains(pack.text) }
        if words.contains(pack.text) { return true }
        return words.last == Self.omissionMark ? nil : false
    }
}
