extension ResponseHead {
    /// The value of the only field of a name; `nil` where there are none or several.
    func value(of name: String) -> String? {
        let name = name.lowercased()
        let values = fields.filter { $0.name.lowercased() == name }
        return values.count == 1 ? values.first?.value : nil
    }

    /// Whether there is a field of a name.
    func has(_ name: String) -> Bool {
        let name = name.lowercased()
        return fields.contains { $0.name.lowercased() == name }
    }

    /// The value of the only field of a name without parameters, which any structured field may have (RFC 9651,
    /// section 3.3).
    private func item(of name: String) -> Substring? {
        value(of: name).map { $0.prefix { $0 != ";" }.trimmingBlanks }
    }

    /// The number in the only field of a name.
    func number(of name: String) -> Int64? {
        item(of: name).flatMap(ContentRange.number)
    }

    /// Whether the status is one of success.
    var isSuccess: Bool { (200..<300).contains(status) }

    /// The interop version of resumable uploads.
    var uploadVersion: String? {
        item(of: "Upload-Draft-Interop-Version").map(String.init)
    }

    /// The offset of an upload.
    var uploadOffset: Int64? { number(of: "Upload-Offset") }

    /// Whether an upload is complete (RFC 9651, section 3.3.6: a Boolean).
    var isUploadComplete: Bool? {
        switch item(of: "Upload-Complete") {
        case "?1": true
        case "?0": false
        default: nil
        }
    }
}
