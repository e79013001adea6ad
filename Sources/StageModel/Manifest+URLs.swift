extension Manifest {
    /// Returns where something that the manifest names is, in the order in which to ask.
    ///
    /// An absolute URL stands for itself. A relative one is resolved (RFC 3986, section 5) against each
    /// of ``baseURLs`` in turn or, where there are none, against `manifestURL`: the URL that answered
    /// when the manifest was fetched. URLs that mean the same place are listed once.
    public func urls(for url: String, manifestURL: String) -> [String] {
        let reference = URLReference(url)
        if reference.scheme != nil { return [url] }
        var urls: [String] = []
        for base in baseURLs.isEmpty ? [manifestURL] : baseURLs {
            let url = URLReference(base).resolving(reference).text
            if !urls.contains(url) { urls.append(url) }
        }
        return urls
    }

    /// Returns where a bundle of an indexed pack is, in the order in which to ask.
    public func urls(forBundle digest: Digest, of index: PackIndex, manifestURL: String) -> [String]
    {
        urls(of: "../b/\(digest)", beside: index, manifestURL: manifestURL)
    }

    /// Returns where a delta set of an indexed pack is, in the order in which to ask.
    public func urls(
        forDeltaSet digest: Digest,
        of index: PackIndex,
        manifestURL: String
    ) -> [String] {
        urls(of: "../d/\(digest)", beside: index, manifestURL: manifestURL)
    }

    private func urls(of object: String, beside index: PackIndex, manifestURL: String) -> [String] {
        let reference = URLReference(object)
        return urls(for: index.url, manifestURL: manifestURL).map {
            URLReference($0).resolving(reference).text
        }
    }
}
